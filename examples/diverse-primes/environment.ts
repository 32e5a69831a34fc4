import { defineEnvironment, z } from 'millrace'

/** Scored as a group: an answer is worth more the fewer siblings gave it too. Run it with `-n 8`. */
export default defineEnvironment({
  name: 'diverse-primes',
  description: 'Name a prime that no other attempt names',
  options: z.object({ count: z.coerce.number().int().positive().default(50) }),
  task: z.object({ low: z.number(), high: z.number() }),
  tasks: ({ count }) =>
    Array.from({ length: count }, (_, index) => ({ low: index * 10 + 100, high: index * 10 + 2000 })),

  prompt: ({ task }) =>
    `Name a prime number between ${task.low} and ${task.high}. End with a line \`Answer: <number>\`.`,

  reward: {
    prime: {
      weight: 0.5,
      score: ({ task, answer }) => {
        const number = numberIn(answer)
        return number >= task.low && number <= task.high && isPrime(number)
      },
    },
    distinct: {
      weight: 0.5,
      group: ({ members }) => {
        const numbers = members.map((member) => numberIn(member.answer))
        return numbers.map((number) => 1 / numbers.filter((other) => Object.is(other, number)).length)
      },
    },
  },
})

function numberIn(answer: string): number {
  return Number(/Answer:\s*(\d+)/.exec(answer)?.[1])
}

function isPrime(number: number): boolean {
  for (let divisor = 2; divisor * divisor <= number; divisor += 1) {
    if (number % divisor === 0) return false
  }
  return number > 1
}
