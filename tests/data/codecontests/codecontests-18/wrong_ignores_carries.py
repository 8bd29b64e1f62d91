# takes the sum bit by bit without carries
n = int(input())
a = list(map(int, input().split()))
answer = 0
for bit in range(25):
    ones = sum(value >> bit & 1 for value in a)
    if ones * (n - ones) % 2:
        answer |= 1 << bit
print(answer)
