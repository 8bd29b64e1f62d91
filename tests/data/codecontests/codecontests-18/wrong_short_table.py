# table of sums one entry too short: IndexError when the largest value occurs twice
n = int(input())
a = list(map(int, input().split()))
odd = [0] * (2 * max(a))
for i in range(n):
    for j in range(i):
        odd[a[i] + a[j]] ^= 1
answer = 0
for total, times in enumerate(odd):
    if times:
        answer ^= total
print(answer)
