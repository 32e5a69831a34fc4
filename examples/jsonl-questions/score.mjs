// Scores one rollout: JSON on standard input, `{"score": n}` on standard output. Any language will do.
import { readFileSync } from 'node:fs'

const { task, answer } = JSON.parse(readFileSync(0, 'utf8'))
const number = Number(/Answer:\s*(-?[\d.]+)/.exec(answer)?.[1])
console.log(JSON.stringify({ score: number === task.answer ? 1 : 0 }))
