"""How each row is shown: its columns and its closing sentence, once for CLI and dashboard."""
