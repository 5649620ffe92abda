"""Drills: real incidents in a lab, a story of their symptoms, and a grade by what the logs say.

`catalogue` lists them, `planting` and `work` make what they consist of, `state` hides the truth,
`running` starts, answers and ends one, `grading` reads what became of it, and `judge` marks that.
"""
