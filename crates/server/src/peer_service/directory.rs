//! Homes of directories: which servers hold entries, when they changed, and their removal.
