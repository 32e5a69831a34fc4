import type { Solver } from './solver.ts'

/** The ready-made judge: compares an answer with its reference and ends with a score. A wrong decision turns it round. */
export const judge: Solver = {
  name: 'judge',
  solve(context) {
    if (!context.system.startsWith('You are a strict judge.')) return undefined
    const sections = readSections(context.question)
    // The answer may stand between tags, so that nothing in it passes for a section of its own.
    const answer = (sections.get('answer') ?? '').replaceAll(/<\/?answer-\w+>/g, '').trim()
    const reference = sections.get('reference')
    const agreement = reference ? agree(answer, reference) : plausible(answer, context.draw('plausible'))
    const score = context.isRight ? agreement : 1 - agreement
    const verdict = score >= 0.5 ? 'The answer agrees with what was asked for.' : 'The answer falls short.'
    return { text: `${verdict}\nScore: ${Number(score.toFixed(2))}` }
  },
}

/** The text under each `### Heading`, by the heading in lower case; the line that asks for a score belongs to none. */
function readSections(text: string): Map<string, string> {
  const sections = new Map<string, string>()
  const material = text.replace(/^.*\bscore: ?<.*$/gim, '')
  for (const part of material.split(/^###\s+/m).slice(1)) {
    const end = part.indexOf('\n')
    const heading = part.slice(0, end).trim().toLowerCase()
    if (end > 0 && !sections.has(heading)) sections.set(heading, part.slice(end + 1).trim())
  }
  return sections
}

/** A reference that is a number must be the answer's last number; for any other reference, the share of its words counts. */
function agree(answer: string, reference: string): number {
  const expected = Number(reference)
  if (!Number.isNaN(expected)) return Number(answer.match(/-?\d+(?:\.\d+)?/g)?.at(-1)) === expected ? 1 : 0
  const answered = new Set(wordsOf(answer))
  const wanted = wordsOf(reference)
  return wanted.length === 0 ? 0 : wanted.filter((word) => answered.has(word)).length / wanted.length
}

/** Without a reference nobody can tell, but any answer is worth more than none. */
function plausible(answer: string, luck: number): number {
  return answer === '' ? 0 : 0.5 + luck / 2
}

function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []
}
