n = int(input())
a = list(map(int, input().split()))
answer = 0
for i in range(n):
    for j in range(i, n):
        answer ^= a[i] + a[j]
print(answer)
