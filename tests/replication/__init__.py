"""What several hosts are made of.

simulator/           a group in a simulated world: one seeded heap, everything fails, invariants after every step
test_simulator.py    10,000 seeds
"""
