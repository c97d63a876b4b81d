# What `cmake --install` and CPack give. Filled beside the targets that exist.
