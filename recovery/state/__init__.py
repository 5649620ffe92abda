"""States rebuilt from changelogs: manifests, the latest entry of each key, comparing."""
