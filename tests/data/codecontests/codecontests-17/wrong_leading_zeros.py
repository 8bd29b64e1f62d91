# the sorted digits may begin with zero
n = input()
m = input()
print("OK" if sorted(n) == list(m) else "WRONG_ANSWER")
