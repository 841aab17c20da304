"""Translation models: how they are found, downloaded, loaded and run; each family is a package of its own."""
