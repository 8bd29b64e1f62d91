from collections import deque

s = input().strip()
beside = {digit: set() for digit in s}
for i in range(1, len(s)):
    beside[s[i]].add(s[i - 1])
    beside[s[i - 1]].add(s[i])
jumps = {s[0]: 0}
queue = deque([s[0]])
while queue:
    digit = queue.popleft()
    for other in beside[digit]:
        if other not in jumps:
            jumps[other] = jumps[digit] + 1
            queue.append(other)
print(jumps[s[-1]])
