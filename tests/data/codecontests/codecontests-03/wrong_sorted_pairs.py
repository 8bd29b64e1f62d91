n = int(input())
a = sorted(input() for _ in range(n))
b = sorted(input() for _ in range(n))
print(sum(a[i] != b[i] for i in range(n)))
