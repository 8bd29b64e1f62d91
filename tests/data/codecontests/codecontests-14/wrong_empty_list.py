# IndexError when every monster was killed by a shot and the list is empty
for _ in range(int(input())):
    n, r = map(int, input().split())
    monsters = sorted(set(list(map(int, input().split()))[:n]))
    shots = 0
    while monsters[-1] - shots * r > 0:
        monsters.pop()
        shots += 1
    print(shots)
