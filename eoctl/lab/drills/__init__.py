"""Drills: real incidents in a lab, a story of their symptoms, and a grade by what the logs say.

`catalogue` lists the drills, `planting` and `work` create their faults, `own` makes a drill of a
bundle, `drill_state` hides the truth, `running` starts, answers and ends a drill, `grading` reads
its outcome, and `judge` marks that.
"""
