"""Small engines that can be checked by reading: the oracles of the simulator's C++ engines."""
