"""The dashboard and a bundle ask here for every read command's answer at once."""
