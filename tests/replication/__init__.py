"""What several hosts are made of.

simulator/           a group in a simulated world: one seeded heap, everything fails, invariants after each step
test_simulator.py    10,000 seeds
test_mutations.py    each guard removed, and found
test_core.py         what one replica does, step by step
"""
