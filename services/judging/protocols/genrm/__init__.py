"""NVIDIA's GenRM models, generative pairwise judges that grade both responses and rank them."""
