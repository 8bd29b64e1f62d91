# a shot for every monster, although one shot kills all at the same place
for _ in range(int(input())):
    n, r = map(int, input().split())
    monsters = sorted(map(int, input().split()), reverse=True)
    shots = 0
    for x in monsters:
        if x > shots * r:
            shots += 1
    print(shots)
