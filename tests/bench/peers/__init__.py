"""Other engines that do what ours does, on the same broker, topics and machine.

What they need is locked with hashes here and built under the home's folder on first use: JVM
engines by `java`, Python engines in environments of their own by `environments`.
"""
