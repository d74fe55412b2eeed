"""What is wrong, since when, and what to do: rules over what the broker counts.

finding.py   What a rule has found, and what it says.
sight.py     What the rules look at, read with the caller's rights.
past.py      What earlier looks saw, for rules that need more than one.
looks.py     Since when something has been found; looks that come soon after one another are one.
evaluate.py  All rules, applied.
telling.py   Findings as events, when they begin and end.
rules/       The rules, one noun a file.
"""
