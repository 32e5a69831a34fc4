import type { SolverContext } from './solver-context.ts'

/** The answer in the form that the prompt asks for; a short sentence if it asks for none. */
export function formatAnswer(context: SolverContext, answer: string): string {
  const prompt = `${context.system}\n${context.question}`
  if (/\banswer:/i.test(prompt)) return `Answer: ${answer}`
  if (prompt.includes('\\boxed')) return `\\boxed{${answer}}`
  if (/<answer>/i.test(prompt)) return `<answer>${answer}</answer>`
  if (prompt.includes('####')) return `#### ${answer}`
  return `The answer is ${answer}.`
}
