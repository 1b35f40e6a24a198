"""Families of jobs as people have them: files for ``lifecycle-sim capture``, and what PyTorch's own CUDA code allocates for them."""
