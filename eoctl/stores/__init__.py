"""All that eoctl keeps: journal, plans, bundles, jobs; stores of offsets, of states, locks."""
