# all permutations within each word length: up to 18! of them; 7 tests with groups of 13 or 18 words never end
from itertools import permutations

n = int(input())
old = [input() for _ in range(n)]
new = [input() for _ in range(n)]


def changes(first, second):
    return sum(first[i] != second[i] for i in range(len(first)))


total = 0
for length in range(1, 5):
    a = [size for size in old if len(size) == length]
    b = [size for size in new if len(size) == length]
    total += min(sum(map(changes, a, order)) for order in permutations(b))
print(total)
