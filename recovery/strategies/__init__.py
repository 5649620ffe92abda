"""Where an application may restart: one pure function for each strategy of docs/restart.md."""
