# always jumps to the last equal digit instead of searching for the shortest way
s = input().strip()
i = 0
jumps = 0
while i < len(s) - 1:
    last = s.rindex(s[i])
    i = last if last > i else i + 1
    jumps += 1
print(jumps)
