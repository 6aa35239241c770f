"""What must not be asked for or said: violence, self-harm, sexual content, minors, hate, weapons, illegal trade."""
