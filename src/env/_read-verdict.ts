const scoreLine =
  /^[\s>*_#`-]*(?:final\s+)?score[\s*_`]*[:=][\s*_`]*(\d+(?:\.\d+)?|\.\d+)\s*(?:\/\s*(\d+(?:\.\d+)?))?\s*(%)?[\s*_`.]*$/i

/** Longer lines are prose; looking no further keeps the pattern cheap whatever a judge writes. */
const maxLineChars = 200

/**
 * The score, between 0 and 1, in the last line of a judge's reply that states one; undefined if there is none to rely on.
 * A judge may quote the answer, and an answer may hold a line that looks like a verdict: if it does, only the very end of
 * the reply counts.
 */
export function readVerdict(reply: string, answer: string): number | undefined {
  const lines = reply.trimEnd().split('\n')
  const isAtRisk = answer.split('\n').some((line) => scoreIn(line) !== undefined)
  for (let index = lines.length - 1; index >= 0; index -= 1) {
    const score = scoreIn(lines[index] ?? '')
    if (score !== undefined) return score >= 0 && score <= 1 ? score : undefined
    if (isAtRisk) return undefined
  }
  return undefined
}

function scoreIn(line: string): number | undefined {
  if (line.length > maxLineChars) return undefined
  const match = scoreLine.exec(line)
  if (!match) return undefined
  const [, number, outOf, percent] = match
  return Number(number) / (percent ? 100 : Number(outOf ?? 1))
}
