n = sorted(input())
m = input()
for i, digit in enumerate(n):
    if digit != "0":
        n[0], n[i] = n[i], n[0]
        break
print("OK" if int("".join(n)) == int(m) else "WRONG_ANSWER")
