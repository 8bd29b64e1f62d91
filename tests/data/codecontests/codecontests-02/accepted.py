from collections import deque


def main():
    s = input().strip()
    n = len(s)
    places = {}
    for i, digit in enumerate(s):
        places.setdefault(digit, []).append(i)
    distance = [-1] * n
    distance[0] = 0
    queue = deque([0])
    while queue:
        i = queue.popleft()
        if i == n - 1:
            break
        neighbours = places.pop(s[i], [])
        for j in (i - 1, i + 1, *neighbours):
            if 0 <= j < n and distance[j] < 0:
                distance[j] = distance[i] + 1
                queue.append(j)
    print(distance[-1])


main()
