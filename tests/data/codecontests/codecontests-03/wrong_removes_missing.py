# list.remove() of a size that the new list lacks raises ValueError
n = int(input())
old = [input() for _ in range(n)]
new = [input() for _ in range(n)]
for size in old:
    new.remove(size)
print(len(new))
