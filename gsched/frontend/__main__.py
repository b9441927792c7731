"""`python -m gsched.frontend`."""

from gsched.frontend.main import main

main()
