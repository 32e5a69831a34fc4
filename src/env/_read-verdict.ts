const scoreLine =
  /^[\s>*_#`-]*(?:final\s+)?score[\s*_`]*[:=][\s*_`]*(\d+(?:\.\d+)?|\.\d+)\s*(?:\/\s*(\d+(?:\.\d+)?))?\s*(%)?[\s*_`.]*$/i

/** Longer lines are prose and are not searched, which keeps the pattern cheap whatever a judge writes. */
const maxLineChars = 200

/**
 * The score, between 0 and 1, in the last line of a judge's reply that states one; undefined if there is no reliable one. A
 * judge may quote the answer. If the answer holds a line that looks like a verdict, only the last line of the reply counts.
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
