"""Write the kernel (Nystrom) features of a store.

plan       the kernel features, and whether they are stored on disk or computed in every pass
landmarks  sampling of landmarks from the store, and the map built from them
build      writing, reusing and resuming an embedding
"""
