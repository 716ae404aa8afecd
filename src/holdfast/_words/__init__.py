"""What people read about the codes and facts that the engine returns."""
