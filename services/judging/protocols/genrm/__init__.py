"""NVIDIA's GenRM models, generative judges that grade two responses and rank them, or grade one."""
