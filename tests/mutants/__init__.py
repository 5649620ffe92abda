"""Do the tests notice when a rule is wrong? `make mutants` changes one place at a time."""
