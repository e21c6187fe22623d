"""The kernel that every part uses: ids, errors, clock, callers, domain events and the unit of work.

A module of the kernel is one small thing, often below sixty lines: they are imported one by one, everywhere, and few of them
together.
"""
