"""How rates and costs grow with partitions, connections, group members, topics and logs: one curve
each, drawn beside the law that the design promises.

    python -m benchmarks.growth --figures DIRECTORY
"""
