"""`state`: rebuilt, shown, compared, delivered."""
