for _ in range(int(input())):
    n, r = map(int, input().split())
    monsters = sorted(set(map(int, input().split())), reverse=True)
    shots = 0
    for x in monsters:
        if x - shots * r < 0:
            break
        shots += 1
    print(shots)
