import sys


def main():
    lines = sys.stdin.read().splitlines()
    answers = []
    for i in range(int(lines[0])):
        n, r = map(int, lines[2 * i + 1].split())
        places = sorted(set(map(int, lines[2 * i + 2].split()[:n])), reverse=True)
        shots = 0
        for x in places:
            if x - shots * r <= 0:
                break
            shots += 1
        answers.append(max(shots, 1))
    print("\n".join(map(str, answers)))


main()
