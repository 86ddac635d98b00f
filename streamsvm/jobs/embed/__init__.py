"""embed: kernel (Nystrom) features of a store.

plan       which features, and whether on disk or in every pass
landmarks  landmarks read from the store, and the map made of them
build      the embedding written, reused or resumed
"""
