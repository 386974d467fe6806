"""Which files a prompt will need, from what stands in it, in the files, and in what was done before. No model.

Plain functions over plain values: given the same tree, the same past and the same question, the same answer. The design
and what each signal is worth are in docs/navigation.md.
"""
