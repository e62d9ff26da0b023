"""Products by warpgroups (`wgmma`, sm_90a): which loops qualify, and their form for threads."""
