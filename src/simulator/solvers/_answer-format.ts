import type { Scene } from './scene.ts'

/** The answer in the form that the prompt asks for; a short sentence if it asks for none. */
export function formatAnswer(scene: Scene, answer: string): string {
  const prompt = `${scene.system}\n${scene.question}`
  if (/\banswer:/i.test(prompt)) return `Answer: ${answer}`
  if (prompt.includes('\\boxed')) return `\\boxed{${answer}}`
  if (/<answer>/i.test(prompt)) return `<answer>${answer}</answer>`
  if (prompt.includes('####')) return `#### ${answer}`
  return `The answer is ${answer}.`
}
