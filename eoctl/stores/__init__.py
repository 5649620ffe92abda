"""What eoctl keeps: journal, plans, bundles, jobs; stores of offsets and states; locks."""
